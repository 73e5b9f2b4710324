"""Measurements. Each figure stands beside a comparator of the same run; nothing here is a test."""
