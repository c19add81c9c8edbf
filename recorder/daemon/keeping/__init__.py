"""Events of which some seconds before and after are kept, and the ring that they are taken from."""
