"""The bus between processes: messages, their wire format, sockets and control."""
