"""What is recorded when: the state machine, its wish, names and plans of sessions."""
