"""Who runs next: fragments, schedules, exploration and exhaustive search."""
