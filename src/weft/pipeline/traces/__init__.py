"""What a trace tells: `read` and `lines` bring JSON lines into one shape, `pieces` adds them up in
a form that can be merged, `figures` and `overview` make tables of the pieces, `measure` does all of
it once, and `follow` keeps it up to date while a trace grows (`growing`)."""
