"""What is recorded when: the state machine, the desired state, names and plans of sessions."""
