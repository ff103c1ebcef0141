# The words of the field, with their definitions.
