"""Messages of ROS 2 in CDR, and their definitions.

cdr          numbers, strings and sequences to bytes and back
codec        values of messages to CDR and back, by the definitions
definitions  the text that a bag holds of a message type
messages     dataclasses of the messages
bag          metadata of a bag
"""
