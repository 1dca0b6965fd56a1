// This file lets program_linux_unsafe.go declare functions without bodies.
