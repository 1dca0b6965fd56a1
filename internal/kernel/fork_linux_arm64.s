#include "textflag.h"

// func forkOnStack(flags, stack, main uintptr, a *arena) (pid uintptr)
//
// clone(2) with a stack of the child's own; the child goes on in main(a), which
// never returns. It reads none of the parent's stack, has no g, and needs none:
// main is called by Go's register convention directly (a in R0).
TEXT ·forkOnStack(SB), NOSPLIT, $0-40
	MOVD flags+0(FP), R0
	MOVD stack+8(FP), R1
	MOVD main+16(FP), R20 // R19 and R20 are kept across the call
	MOVD a+24(FP), R19
	MOVD ZR, R2
	MOVD ZR, R3
	MOVD ZR, R4
	MOVD $220, R8 // SYS_clone
	SVC
	CBZ  R0, child
	MOVD R0, pid+32(FP)
	RET
child:
	// RSP is the child's own from here on.
	SUB  $64, RSP // where main may keep its argument
	MOVD R19, R0
	CALL (R20)
	BRK  $0
