"""Mathematics on SIMD vectors: formulas, their coefficients, and the LLVM text they become."""
