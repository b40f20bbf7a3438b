"""Arrays in, arrays out: the arithmetic of consilience, in numpy and numba.

Kernels validate nothing and import nothing of the package. Every kernel that runs over rows is compiled once
and cached on disk. Legend, in the papers' symbols: n rows, L classes, N teachers (blocks), m packed columns,
z logits, p probabilities, u a row's unified logits or probabilities, v and c a teacher's scale and shift.
"""
