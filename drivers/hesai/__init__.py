"""Hesai's lidars."""
