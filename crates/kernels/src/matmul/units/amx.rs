//! AMX tiles: the processor multiplies 16 rows of 32 numbers by 32 rows of 16 at once.
//!
//! The compiler knows the instructions in assembly only, and never touches the tile registers itself; none of the pieces of
//! assembly says that it leaves memory alone, so that they stay in their order.

use super::super::tiles::{Piece, SIDE, Side};
use super::{Avx512, Ready, Unit, checked_steps};
use std::arch::asm;
use std::arch::x86_64::__cpuid_count;
use std::marker::PhantomData;

/// A processor with AMX-BF16 whose tiles this process may use.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Amx {
    packer: Avx512,
}

impl Amx {
    /// The unit, where this processor has it and the system lets the process use it (Linux hands out the tiles' state on
    /// request, `ARCH_REQ_XCOMP_PERM`; once for all threads).
    pub(in super::super) fn find() -> Option<Amx> {
        const BF16_AND_TILES: u32 = 1 << 22 | 1 << 24;
        let packer = Avx512::find()?;
        let features = __cpuid_count(7, 0).edx;
        (features & BF16_AND_TILES == BF16_AND_TILES && may_use_tiles()).then_some(Amx { packer })
    }
}

#[cfg(target_os = "linux")]
fn may_use_tiles() -> bool {
    const ARCH_PRCTL: i64 = 158;
    const ARCH_REQ_XCOMP_PERM: u64 = 0x1023;
    const XFEATURE_XTILEDATA: u64 = 18;
    let mut result = ARCH_PRCTL;
    // SAFETY: the call reads its two numbers and changes what the process may do, no memory.
    unsafe {
        asm!(
            "syscall",
            inout("rax") result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") XFEATURE_XTILEDATA,
            out("rcx") _,
            out("r11") _,
            options(nostack),
        );
    }
    result == 0
}

#[cfg(not(target_os = "linux"))]
fn may_use_tiles() -> bool {
    false
}

impl Unit for Amx {
    type Ready = Tiles;

    fn pack(self, piece: Piece<'_>, side: Side, tile: &mut [u32]) {
        self.packer.pack(piece, side, tile);
    }

    fn ready(self) -> Tiles {
        /// Layout of `ldtilecfg`: all eight tiles of 16 rows of 64 bytes.
        #[repr(C, align(64))]
        struct Shape {
            palette: u8,
            start_row: u8,
            reserved: [u8; 14],
            bytes_per_row: [u16; 16],
            rows: [u8; 16],
        }
        let (mut bytes_per_row, mut rows) = ([0; 16], [0; 16]);
        bytes_per_row[..8].fill(64);
        rows[..8].fill(SIDE as u8);
        let shape = Shape { palette: 1, start_row: 0, reserved: [0; 14], bytes_per_row, rows };
        // SAFETY: an `Amx` is only made where the processor has tiles and they may be used; the shape is a valid one.
        unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const shape, options(nostack)) }
        Tiles(PhantomData)
    }
}

/// The tiles of this thread, shaped; given back at the end. It stays on its thread.
pub(in super::super) struct Tiles(PhantomData<*const ()>);

impl Drop for Tiles {
    fn drop(&mut self) {
        // SAFETY: the thread's tiles were shaped by it, so the processor has the instruction.
        unsafe { asm!("tilerelease", options(nostack)) }
    }
}

impl Ready for Tiles {
    fn multiply(&self, a: &[u32], b: &[u32], out: &mut [f32], row_stride: usize, accumulate: bool) {
        let steps = checked_steps(a, b, out, row_stride);
        let upper = out.as_mut_ptr();
        let stride = row_stride * size_of::<f32>();
        // SAFETY: the tiles are shaped on this thread (`self`), and sizes were checked: 32 rows of 32 numbers from `upper` on,
        // and `steps` times 512 words of both panels.
        unsafe {
            let lower = upper.add(SIDE * row_stride);
            if accumulate {
                asm!(
                    "tileloadd tmm0, [{upper} + {stride}*1]",
                    "tileloadd tmm1, [{upper} + {stride}*1 + 64]",
                    "tileloadd tmm2, [{lower} + {stride}*1]",
                    "tileloadd tmm3, [{lower} + {stride}*1 + 64]",
                    upper = in(reg) upper, lower = in(reg) lower, stride = in(reg) stride, options(nostack),
                );
            } else {
                asm!("tilezero tmm0", "tilezero tmm1", "tilezero tmm2", "tilezero tmm3", options(nostack));
            }
            if steps > 0 {
                asm!(
                    "2:",
                    "tileloadd tmm4, [{a} + {row}*1]",
                    "tileloadd tmm6, [{b} + {row}*1]",
                    "tileloadd tmm7, [{b} + {row}*1 + 1024]",
                    "tdpbf16ps tmm0, tmm4, tmm6",
                    "tileloadd tmm5, [{a} + {row}*1 + 1024]",
                    "tdpbf16ps tmm1, tmm4, tmm7",
                    "tdpbf16ps tmm2, tmm5, tmm6",
                    "tdpbf16ps tmm3, tmm5, tmm7",
                    "add {a}, 2048",
                    "add {b}, 2048",
                    "dec {steps}",
                    "jnz 2b",
                    a = inout(reg) a.as_ptr() => _, b = inout(reg) b.as_ptr() => _, steps = inout(reg) steps => _,
                    row = in(reg) 64usize, options(nostack),
                );
            }
            asm!(
                "tilestored [{upper} + {stride}*1], tmm0",
                "tilestored [{upper} + {stride}*1 + 64], tmm1",
                "tilestored [{lower} + {stride}*1], tmm2",
                "tilestored [{lower} + {stride}*1 + 64], tmm3",
                upper = in(reg) upper, lower = in(reg) lower, stride = in(reg) stride, options(nostack),
            );
        }
    }
}
