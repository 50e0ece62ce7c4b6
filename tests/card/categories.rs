//! The 25 categories of the paper's Table 2, with the metadata of Table 3.
