# Warnings are errors, with gcc and clang alike.
add_compile_options(
  -Wall -Wextra -Werror=all -Werror=extra -Werror=shadow -Werror=conversion -Werror=sign-conversion
  -Werror=undef
  -Werror=missing-declarations
  -Werror=return-type -Werror=uninitialized -Werror=format=2 -Werror=format-security
  -Werror=write-strings -Werror=cast-qual -Werror=pointer-arith -Werror=redundant-decls
  -Werror=vla -Werror=switch -Werror=implicit-fallthrough -Werror=unused -Werror=null-dereference
  -Wno-missing-field-initializers -Wno-sign-compare)
foreach(flag strict-prototypes old-style-definition missing-prototypes implicit-function-declaration
    incompatible-pointer-types int-conversion nested-externs)
  add_compile_options($<$<COMPILE_LANGUAGE:C>:-Werror=${flag}>)
endforeach()
if(CMAKE_C_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Werror=logical-op -Werror=duplicated-cond)
endif()
# Sanitizers and -O0 make gcc's flow analysis guess; the optimised builds check.
if(NTR_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
  add_compile_options(-Wno-error=null-dereference -Wno-null-dereference -Wno-error=maybe-uninitialized
    -Wno-maybe-uninitialized)
endif()
add_compile_options(-fstack-protector-strong -fno-strict-aliasing)
