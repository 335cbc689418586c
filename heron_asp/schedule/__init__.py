"""From steps and an assignment to a TVM schedule: planned as data, then replayed or printed."""
