from consilience._words import parse_size as parse_size
from consilience._words import size_text as size_text
