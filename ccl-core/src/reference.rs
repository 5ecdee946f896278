//! Scalar reference of every reduction: the bits that plans and kernels are held to.
