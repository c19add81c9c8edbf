"""Recordings of other software: MCAP files and ROS 2 bags, and the messages in them.

bag       the files of a recording, as one
contents  what a topic holds, on which time base, and which topic a source means
messages  decoders of the messages that are understood
protobuf  the fields of a protobuf message
"""
