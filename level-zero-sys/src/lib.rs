//! Declarations of the Level Zero API and a table of its functions, loaded at run time.
