"""What a trace tells: `libp2p` and `forms` read and write it as other tools do, `source` finds it
and brings its lines into one shape, `pieces` adds them up in a form that can be merged, `figures`
makes tables of the pieces, `measure` does all of it once, and `follower` keeps it up to date while
a trace grows."""
