"""The thesis's kernel, one launch per expression, to be measured anew."""
