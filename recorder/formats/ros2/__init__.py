"""Messages of ROS 2 in CDR, and their definitions.

cdr          numbers, strings and sequences to bytes and back
definitions  the text that a bag holds of a message type
messages     dataclasses of the sensors' messages, encode and decode
markers      the same for visualization_msgs/msg/MarkerArray
"""
