"""Control of recordings: state machine, desired state, names and plans of sessions."""
