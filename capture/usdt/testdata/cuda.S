# Stands for libcuda.so.1: the names that it exports and the beginning that its functions have.
.macro DRIVER name, to
	.globl \name
	.type \name, @function
\name:	cmpl $0x321cba00, flag(%rip)
	je 1f
	jmp \to
1:	ud2
	.size \name, . - \name
.endm
	.text
DRIVER cuMemAlloc_v2, fake_alloc
DRIVER cuMemAllocManaged, fake_alloc
DRIVER cuMemAllocPitch_v2, fake_pitch
DRIVER cuMemAllocAsync, fake_alloc
	.globl cuMemAllocAsync_ptsz	# another name of the same function: probed once
	.set cuMemAllocAsync_ptsz, cuMemAllocAsync
DRIVER cuMemFree_v2, fake_none
DRIVER cuMemFreeAsync, fake_none
DRIVER cuMemCreate, fake_alloc
DRIVER cuMemRelease, fake_none
DRIVER cuMemUnmap, fake_none
DRIVER cuMemHostAlloc, fake_alloc
DRIVER cuMemFreeHost, fake_none
	.globl cuMemMap	# begins with something else, which is stepped over: the probe stays on its first byte
	.type cuMemMap, @function
cuMemMap:
	mov %rdi, %rax
	jmp fake_none
	.size cuMemMap, . - cuMemMap
	.data
	.balign 4
flag:	.4byte 0
	.section .note.GNU-stack, "", @progbits
