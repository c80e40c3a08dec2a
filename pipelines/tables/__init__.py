"""One reader of tables: files, folders, globs and URLs become Arrow columns, some rows at a time.

sources   finds files and opens them
pieces    parts of files, one per task
read      ``read_rows``: a piece as columns by name, with the file and number of each row
rows      rows that cannot be used: found column by column, reported row by row
columns   columns as integers, floats, strings; a value that cannot be converted marks its row
"""
