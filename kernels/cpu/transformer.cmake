# The transformer kernels, added to the lists of CMakeLists.txt.
list(APPEND PENSTOCK_KERNEL_GENERIC transformer.cpp)
list(APPEND PENSTOCK_KERNEL_SCALAR transformer_scalar.cpp)
list(APPEND PENSTOCK_KERNEL_AVX2 transformer_avx2.cpp)
list(APPEND PENSTOCK_KERNEL_AVX512 transformer_avx512.cpp)
