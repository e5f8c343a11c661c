"""From files that people have to the tables of a lake.

files.py        which files, whether they are whole, how they begin and end
options.py      what the user says about them, and which column is what
formats.py      the formats by name, and which one a file is in
rows.py, snap.py, mediawiki.py, pubsub.py
                one family of formats each: a file's beginning → how to read it → `STAGED`
records.py      text → lines → records → pairs of user and topic; or why not
dictionary.py   names → numbers, pairs → memberships
job.py          all of it, in order
"""
