"""Reports of NVIDIA's assembler, as two releases of NVRTC write them."""

from __future__ import annotations

import pytest
from nvrtc_reports import fresh_report, registers_and_spills

from exprkit.backends.gpu import nvrtc
from exprkit.backends.precision import precision
from exprkit.errors import BackendError

REPORT_12 = """ptxas info    : 24 bytes gmem
ptxas info    : Compiling entry function 'other' for 'sm_90'
ptxas info    : Function properties for other
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
ptxas info    : Compiling entry function 'fit' for 'sm_90'
ptxas info    : Function properties for fit
ptxas         .     384 bytes stack frame, 392 bytes spill stores, 568 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 384 bytes cumulative stack size
ptxas info    : Function properties for _Z6helperfi
ptxas         .     8 bytes stack frame, 8 bytes spill stores, 8 bytes spill loads
"""  # NVRTC 12.6
REPORT_13 = """k.cu(3): warning #128-D: loop is not reachable

ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'fit' for 'sm_90'
ptxas info    : Function properties for fit
ptxas         .     304 bytes stack frame, 304 bytes spill stores, 344 bytes spill loads
ptxas info    : Used 40 registers, used 0 barriers, 304 bytes cumulative stack size
ptxas info    : Compile time = 25.129 ms
ptxas info    : Function properties for _Z6helperfi
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'choose' for 'sm_90'
ptxas info    : Function properties for choose
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 10 registers, used 0 barriers
ptxas info    : Compile time = 1.867 ms
"""  # NVRTC 13.5
MANGLED = REPORT_12.replace("'fit'", "'_Z3fitPfi'").replace("for fit", "for _Z3fitPfi")


@pytest.mark.parametrize(
    "report, kernel, wanted",
    [
        (REPORT_12, "fit", (32, 400)), (REPORT_12, "other", (8, 0)), (MANGLED, "fit", (32, 400)),
        (REPORT_13, "fit", (40, 304)), (REPORT_13, "choose", (10, 0)),
    ],
)  # fmt: skip
def test_a_kernel_s_registers_and_what_it_spills_with_its_functions(report, kernel, wanted):
    assert registers_and_spills(report, kernel) == wanted


OTHER = REPORT_12.replace("'fit'", "'profit'")


@pytest.mark.parametrize("report", ["", OTHER, "ptxas info : Compiling entry function 'fit' for"])
def test_a_report_without_the_kernel_is_shown(report):
    with pytest.raises(ValueError, match="says nothing of a kernel 'fit':\n") as told:
        registers_and_spills(report, "fit")
    assert str(told.value).endswith(report)


def test_code_of_the_driver_s_cache_has_no_report(monkeypatch):
    monkeypatch.setattr(nvrtc, "build", lambda *given, **chosen: (b"", "k.cu(3): warning #128-D\n\0"))
    with pytest.raises(BackendError, match=r"set CUDA_CACHE_DISABLE=1 in the environment.*warning #128-D"):
        fresh_report("sm_90", precision("fast"), "")
