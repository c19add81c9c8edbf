"""Packet captures: pcap and pcapng files, and the datagrams in them."""
