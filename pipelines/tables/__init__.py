"""One reader of tables: files, folders, globs and URLs become Arrow columns, some rows at a time.

sources   where files are, and how they are opened
pieces    parts of files, one a task
read      ``read_rows``: a piece as columns by name, with the file and row that each comes from
rows      rows that cannot be used: found column by column, reported row by row
columns   columns as integers, floats, strings; what cannot be converted is a row of those
"""
