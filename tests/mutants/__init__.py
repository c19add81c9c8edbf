"""A seeded mutation campaign: single-line defects that the tests must notice."""
