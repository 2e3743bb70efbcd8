# CTest reads this before it runs a test, and every test inherits it: what "penstock tune" has found
# for the user's own drives changes no test.
set(ENV{PENSTOCK_PROFILE} none)
