"""From files that people have to the tables of a lake.

files.py        which files, whether they are whole, how they begin and end
guess.py        which format a file is in, from its name and its beginning
formats.py      the formats by name
delimited.py, jsonlines.py, columnar.py, snap.py, mediawiki_xml.py, mediawiki_history.py,
pubsub.py       one family of formats each: a file's beginning → how to read it → `RECORD`s
entries.py      records → numbered lines → who, what, when; or why not
names.py        names → numbers
merge.py        what is new and what the lake has → memberships
draft.py        the next version of a lake, unseen until it is complete
job.py          all of it, in order
"""
