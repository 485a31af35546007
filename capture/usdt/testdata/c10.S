# Stands for libc10_cuda.so: its two probes, with arguments where one build of torch 2.6 has them. Unlike there, a probe is passed only while
# its semaphore is raised, so that the tests see whether it is.
#include "sdt.inc"

	.text
	.globl torch_malloc
	.type torch_malloc, @function
torch_malloc:	# (pointer, device, size, stream)
	push %rbp
	mov %rsp, %rbp
	push %r14
	sub $104, %rsp
	mov %rcx, -104(%rbp)
	mov %rdx, %r14
	mov %rdi, %rax
	mov %esi, %edx
	cmpw $0, pytorch_malloc_semaphore(%rip)
	je 1f
0:	nop
	SDT pytorch, malloc, pytorch_malloc_semaphore, "-8@%rax -1@%dl -8@%r14 -8@-104(%rbp)"
1:	add $104, %rsp
	pop %r14
	pop %rbp
	ret
	.size torch_malloc, . - torch_malloc

	.globl torch_free
	.type torch_free, @function
torch_free:	# (pointer)
	cmpw $0, pytorch_free_semaphore(%rip)
	je 1f
0:	nop
	SDT pytorch, free, pytorch_free_semaphore, "-8@%rdi"
1:	ret
	.size torch_free, . - torch_free

	.globl torch_free_uncached
	.type torch_free_uncached, @function
torch_free_uncached:	# (unused, pointer): the second site of the same probe, with its argument elsewhere
0:	nop
	SDT pytorch, free, pytorch_free_semaphore, "8@%rsi"
	ret
	.size torch_free_uncached, . - torch_free_uncached

	.globl torch_watchers
	.type torch_watchers, @function
torch_watchers:	# the two semaphores' sum
	movzwl pytorch_malloc_semaphore(%rip), %eax
	movzwl pytorch_free_semaphore(%rip), %edx
	add %edx, %eax
	ret
	.size torch_watchers, . - torch_watchers

	.section .probes, "aw", "progbits"
	.balign 2
pytorch_malloc_semaphore: .2byte 0
pytorch_free_semaphore:   .2byte 0
	.section .note.GNU-stack, "", @progbits
