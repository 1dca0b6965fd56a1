#include "textflag.h"

// func forkOnStack(flags, stack, main uintptr, a *arena) (pid uintptr)
//
// clone(2) with a stack of the child's own; the child goes on in main(a), which
// never returns. It reads none of the parent's stack, has no g and no thread
// area, and needs none: main is called by Go's register convention directly
// (a in AX, X15 zero), as the wrapper for the other one would look for them.
TEXT ·forkOnStack(SB), NOSPLIT, $0-40
	MOVQ flags+0(FP), DI
	MOVQ stack+8(FP), SI
	MOVQ main+16(FP), R13 // R12 and R13 are kept across the call
	MOVQ a+24(FP), R12
	XORL DX, DX
	XORL R10, R10
	XORL R8, R8
	MOVL $56, AX // SYS_clone
	SYSCALL
	TESTQ AX, AX
	JZ   child
	MOVQ AX, pid+32(FP)
	RET
child:
	// SP is the child's own from here on.
	MOVQ R12, AX
	XORPS X15, X15
	XORL R14, R14
	SUBQ $64, SP // where main may keep its argument
	CALL R13
	INT  $3
