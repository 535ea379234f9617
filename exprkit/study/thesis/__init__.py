"""What of the thesis is measured anew: its kernel, one launch per expression."""
