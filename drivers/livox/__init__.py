"""Livox's lidars."""
