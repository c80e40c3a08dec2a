"""What cutting text into fields tells by numbers, on all backends."""

BLANKS = 32  # as a delimiter: any run of blanks
OPEN_QUOTE = -1  # in the place of a row's width: a quote is opened and never closed
AFTER_QUOTE = -2  # something stands between a closing quote and the next delimiter
LONE_RETURN = -3  # a carriage return stands where no newline follows: other lines hide in this one
