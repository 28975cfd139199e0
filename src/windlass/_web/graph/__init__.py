"""The picture of a flow: which boxes it has, where they are, and how lines connect them. Pure
functions: nothing here reads a store or writes markup.
"""
