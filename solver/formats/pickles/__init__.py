"""Reading pickles that strangers wrote: nothing in them is ever imported, called or looked up.

The steps, each of which refuses with one `InputError`: a scan of all opcodes against an allow-list
and limits (`scan`); Python's own unpickler with fewer opcodes, marks for names and stand-ins for
numpy's numbers and arrays (`unpickler`); and a copy of the result under a limit while its form is
checked (`timeline`).
"""
