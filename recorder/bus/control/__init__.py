"""Control of a daemon: requests, the socket's path, and the client."""
