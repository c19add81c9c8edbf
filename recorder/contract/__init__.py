"""What drivers and recorder agree on."""
