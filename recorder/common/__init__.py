"""Helpers without any knowledge of sensors or sessions."""
