"""Recordings of other software: MCAP files, ROS 2 bags, and the messages in them.

bag       the files of a recording, read as one
contents  the content of a topic, its time base, and the topic that a source selects
messages  decoders of the supported messages
protobuf  the fields of a protobuf message
"""
