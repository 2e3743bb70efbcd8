penstock_test(transformer_accuracy_test
              SOURCES transformer_accuracy_test.cpp transformer_norm_checks.cpp
                      transformer_attention_checks.cpp transformer_pointwise_checks.cpp
                      transformer_vocabulary_checks.cpp
              LINKS penstock_kernels_cpu LABELS unit kernels)
