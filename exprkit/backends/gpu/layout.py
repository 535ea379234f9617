"""Structs and constants shared by host and device code, defined once for both.

In: nothing.  Out: ctypes classes and constants for Python, and their text in CUDA C, which ``opcodes`` puts in place of
the lines ``//{name}`` of the kernels' files.

    >>> from exprkit.backends.gpu import layout
    >>> layout.Arguments(n_points=5).n_points
    5
    >>> print(layout.TEXTS["modes"])
    enum { FIRST = 1, IMMEDIATE = 2, ALONE = 4, PAIR_IMMEDIATE = 1, PAIR_AND_IMMEDIATE = 2 };
"""

from __future__ import annotations

import ctypes

from exprkit.backends import objective
from exprkit.backends.decisions import AT_STEP, RUNNING
from exprkit.operators import ops
from exprkit.text import tokens

VECTOR_BYTES = 16  # that a thread loads and stores at once
LINE_BYTES = 256  # of the device's memory that are best written together: data/results/h200_interpreter.md

# ── an instruction: action and places ────────────────────────────────────────────────

# action: opcode << 16 | slot to spill to << 8 | bits; places: column to load << 16 | the operand's column or slot
ACTION, PLACES = range(2)
END, LOAD, SPILL, FROM_SLOT = 1, 2, 4, 8  # last of its program; load a column first; spill first; the operand is a slot
OPCODE_SHIFT, SPILL_SHIFT, LOAD_SHIFT, ACTIVE_SHIFT = 16, 8, 16, 4  # active: of an entry of tangents.cu
OPERAND = (1 << LOAD_SHIFT) - 1  # of places
SOURCE_SHIFT, SOURCE_KIND = 2, 3  # a source: index << 2 | one of these
NO_IMMEDIATE, PARAMETER, CONSTANT, RESULT = range(4)

# Addressing modes of two operands, of which the accumulator is one: bits.  ALONE has no other operand; BOTH has none in
# the accumulator.  Of a double-double there are three; kernels count those from 0.
FIRST, IMMEDIATE = 1, 2  # the other operand is a (not b); it is an immediate (not in memory)
MEMORY, MEMORY_FIRST, IMMEDIATE_FIRST = 0, FIRST, IMMEDIATE | FIRST
ALONE, BOTH = 4, 5
N_MODES = 6
PAIR_IMMEDIATE, PAIR_AND_IMMEDIATE = IMMEDIATE_FIRST >> 1, BOTH >> 1

# What is counted of expressions while bytecode is made, and what is known of all of them then
INSTRUCTIONS, STEPS, RESULTS, CONSTANTS, COST = range(5)
COUNTS = 5
COPY = ops.COPY
N_COLUMNS, N_SLOTS, N_SLOTS_SO_FAR, TRAITS, TRAITS_SO_FAR = range(5, 10)  # of the summary, behind the counts
SUMMARY = 10

# What checking tells of a population: is any expression bad, the most variables, parameters, tokens, is any empty, is
# any constant no float32
BAD, VARIABLES, PARAMETERS, LONGEST, UNREADABLE, WIDE_CONSTANTS = range(6)
CHECKED = 6

# Who is fitted with whom: groups by number of parameters (1, 2, 3, 4, more), with uncommon operators or without; in
# each of them sizes of the blocks' memory
PARAMETER_GROUPS, N_SIZES = 5, 3
N_GROUPS = 2 * PARAMETER_GROUPS
NEED_PARAMS, NEED_INSTRUCTIONS, NEED_RESULTS, NEED_SLOTS, MEMBERS, IS_RARE = range(6)
NEEDS = 6


def _enum(names: str) -> str:
    return f"enum {{ {', '.join(f'{name} = {globals()[name]}' for name in names.split())} }};"


ENUMS = {
    "actions": _enum("END LOAD SPILL FROM_SLOT OPCODE_SHIFT SPILL_SHIFT LOAD_SHIFT ACTIVE_SHIFT")
    + f"\nenum : unsigned {{ OPERAND = {OPERAND} }};",
    "sources": _enum("NO_IMMEDIATE PARAMETER CONSTANT RESULT SOURCE_SHIFT SOURCE_KIND"),
    "modes": _enum("FIRST IMMEDIATE ALONE PAIR_IMMEDIATE PAIR_AND_IMMEDIATE"),
    "counts": _enum("ACTION PLACES COPY INSTRUCTIONS STEPS RESULTS CONSTANTS COST COUNTS")
    + "\n"
    + _enum("N_COLUMNS N_SLOTS N_SLOTS_SO_FAR TRAITS TRAITS_SO_FAR SUMMARY"),
    "checked": _enum("BAD VARIABLES PARAMETERS LONGEST UNREADABLE WIDE_CONSTANTS CHECKED"),
    "batches": _enum("INSTRUCTIONS STEPS CONSTANTS PARAMETER_GROUPS N_GROUPS N_SIZES MEMBERS IS_RARE NEEDS")
    + "\n"
    + _enum("NEED_PARAMS NEED_INSTRUCTIONS NEED_RESULTS NEED_SLOTS"),
    "verdicts": f"enum {{ RUNNING = {RUNNING}, NO_PARAMETERS = {objective.NO_PARAMETERS}, "
    f"INVALID = {objective.INVALID}, NO_DERIVATIVE = {objective.NO_DERIVATIVE} }};",
    "fit states": f"enum {{ RUNNING = {RUNNING}, NOT_FINITE = {objective.NOT_FINITE}, AT_STEP = {AT_STEP} }};\n"
    f"constexpr unsigned SPOILED = {' | '.join(f'1u << {reason}' for reason in objective.SPOILED)};",
    "VECTOR_BYTES": f"constexpr unsigned VECTOR_BYTES = {VECTOR_BYTES};",
    "LINE_BYTES": f"enum : unsigned {{ LINE_BYTES = {LINE_BYTES} }};",
    "tasks": "enum { VALUES, SQUARE, ABSOLUTE, SUM, TEXT };",
    "tokens": f"enum {{ T_CONSTANT = {tokens.CONSTANT}, T_VARIABLE = {tokens.VARIABLE}, "
    f"T_PARAMETER = {tokens.PARAMETER}, T_OPERATOR = {tokens.OPERATOR} }};",
    "fit tasks": "enum { NORMAL, GRADIENT, JACOBIAN, FIT };",
    "ties": f"constexpr double SAME = {objective.SAME!r}, SMALLER = {objective.SMALLER!r}, "
    f"MINUS = {objective.MINUS!r}, UNSETTLED = {objective.UNSETTLED!r};\n"
    f"constexpr unsigned SETTLED = {' | '.join(f'1u << {reason}' for reason in objective.CONVERGED)};",
    "kinds": f"enum {{ SQUARES = {objective.SQUARES}, ABSOLUTE = {objective.ABSOLUTE}, HUBER = {objective.HUBER}, "
    f"POISSON = {objective.POISSON}, SUM = {objective.SUM} }};",
}

# ── structs: rows of type, names, what they are ──────────────────────────────────────

Rows = tuple[tuple[str, str, str], ...]

_INSTRUCTION: Rows = (("unsigned", "action places", ""),)
_STEP: Rows = (("int", "code a b result", "of a prologue; result: index << 1 | is a double-double"),)
_CHUNK: Rows = (
    ("int", "item n_items", "consecutive items of a partition (schedule.py)"),
    ("int", "instruction n_instructions", "the first, in the stream of all sets"),
)
_PROGRESS: Rows = (
    ("double", "damping predicted", ""),
    ("Long", "number", "of the fit: which one of the launch, -1 for none"),
    ("int", "iterations evaluations status phase expression", ""),
)

_PROGRAMS: Rows = (
    ("const Instruction *", "instructions", "(n_instructions)"),
    ("const int *", "first_instruction", "(n_exprs)"),
    ("const int *", "sources", "(n_instructions) where the instructions' immediates come from"),
    ("const Step *", "steps", "prologues"),
    ("const int *", "first_step", "(n_exprs + 1)"),
    ("const T *", "constants", ""),
)
_ARGUMENTS: Rows = (
    *_PROGRAMS,
    ("DoubleDouble *", "immediates", "(n_sets, n_instructions)"),
    ("T *", "results", "(n_sets, n_results) of the prologues"),
    ("const T *", "params", "(n_sets, n_exprs, max_params)"),
    ("const T *", "data", "as the user gave it, two strides"),
    ("const int *", "column_code column_var column_low", "(n_columns)"),
    ("T *", "columns", "(n_columns, pitch)"),
    ("const T *", "target weights beside", "(n_points); of TEXT the first, the last if WEIGHTED, the others"),
    ("const Chunk *", "chunks", "(n_partitions, n_chunks); those without items are the last of a partition"),
    ("T *", "out", "(items, n_points)"),
    ("unsigned short *", "rounded", "(n_items) numbers of ``out`` in 16 bits"),
    ("T *", "partials", "(items, n_segments)"),
    ("double *", "sums", "(items)"),
    ("unsigned long long *", "nonfinite", "(items, 2): nan, inf"),
    ("Long *", "told", "where the host sees the ticket when sums are there"),
    ("Long", "ticket", "another one every time"),
    ("Long", "n_points pitch stride_point stride_variable n_items first_segment", ""),
    ("int", "n_exprs n_instructions n_sets max_params n_columns n_slots n_results n_segments add_to_sums", ""),
    # work item u is partition u / n_tiles of the items on tile u % n_tiles; block b has b, b + gridDim.x, ...
    ("int", "first_tile n_tiles n_work_items n_chunks", ""),
)
_FIT_ARGUMENTS: Rows = (
    *_PROGRAMS,
    ("const T *", "columns", "(n_columns, pitch)"),
    ("const T *", "target weights", "(pitch), zeros behind the last point"),
    ("const int *", "n_params", "(n_exprs)"),
    ("const int *", "order", "(n_here) the expressions of this launch"),
    ("const double *", "starts", "(n_sets, n_exprs, max_params)"),
    ("const double *", "lower upper", "(n_exprs, max_params) or none"),
    ("const double *", "limits", "(n_exprs) or none: a fit whose loss is above has ``patience`` steps"),
    ("const unsigned long long *", "linear", "(n_exprs) bits of the parameters that the expression is linear in"),
    ("const unsigned char *", "verdicts", "(n_exprs) RUNNING, or the status of what is not to be fitted"),
    ("const unsigned char *", "ended", "(n_exprs) or none: only those that ended SPOILED are fitted"),
    ("double *", "params", "(n_sets, n_exprs, max_params)"),
    ("double *", "loss", "(n_sets, n_exprs)"),
    ("double *", "jtr jtj", "(..., max_params), (..., max_params, max_params)"),
    ("int *", "iterations evaluations", ""),
    ("unsigned char *", "status", ""),
    ("T *", "jacobian", "(n_sets, n_exprs, n_points, max_params)"),
    ("char *", "arena", "where shared memory is too small for it"),
    ("unsigned long long *", "taken", "how many fits were taken beside the first ones"),
    ("double", "tol gtol delta nothing", ""),
    ("Long", "arena_bytes first_item", ""),
    ("unsigned", "pitch", ""),
    ("int", "n_points n_exprs n_instructions n_sets max_params n_here max_instructions n_slots max_iter patience", ""),
    ("int", "entries results sums state slots warp_bytes actives rows products", "offsets in bytes: derivatives.py"),
)

_LOWERING_ARGUMENTS: Rows = (
    ("const unsigned char *", "kinds", "the population's tokens (expressions/population.py)"),
    ("const unsigned long long *", "values", ""),
    ("const Long *", "offsets", "(n_exprs + 1)"),
    ("const int *", "n_params", "(n_exprs)"),
    ("const bool *", "positive", "(n_vars)"),
    ("const unsigned char *", "arity width fused positive_a whole_b first rest constant_code", "Rules of rewrite.py"),
    ("const Long *", "traits", "by operator's code (opcodes.py)"),
    ("const Long *", "constant_start", ""),
    ("const double *", "constant_value", ""),
    ("const int *", "opcode", "rows of bytecode.py"),
    ("const Long *", "takes_pair commutative operator_cost", ""),
    ("char *", "scratch", "what the threads work with"),
    ("int *", "counts", "(COUNTS, n_exprs) of the expressions before, in the same chunk"),
    ("Long *", "totals", "(COUNTS, n_chunks) of a chunk, then of all before it"),
    ("Long *", "summary", "(SUMMARY) counts of all, columns, slots"),
    ("Long *", "told", "(SUMMARY + 1) the same for the host, and the ticket when it is there"),
    ("unsigned char *", "wanted", "(256 n_vars) whether a column is used; all 0 before and after"),
    ("int *", "column_of", "(256 n_vars)"),
    ("int *", "column_code column_var column_low", "(most_columns)"),
    ("Instruction *", "instructions", "what is made, as in Bytecode"),
    ("int *", "first_instruction sources", ""),
    ("Step *", "steps", ""),
    ("int *", "first_step", ""),
    ("T *", "constants", ""),
    ("Long *", "cost", ""),
    ("int", "n_exprs n_chunks n_vars most_columns", ""),
    ("int", "most_nodes threads", "of an expression, a multiple of 8; of all blocks"),
    ("Long", "most_words", "there is room for: with more instructions, steps or constants nothing is emitted"),
    ("Long", "ticket", "another one for every population"),
)

_CHECK_ARGUMENTS: Rows = (
    ("const unsigned char *", "kinds", "the population's tokens (expressions/population.py)"),
    ("const unsigned long long *", "values", ""),
    ("const Long *", "offsets", "(n_exprs + 1)"),
    ("const int *", "operands", "what checks.py calls so"),
    ("const unsigned long long *", "limits", "(4)"),
    ("unsigned char *", "own_kinds", "copies of what was checked"),
    ("unsigned long long *", "own_values", ""),
    ("Long *", "own_offsets", ""),
    ("int *", "n_params", "(n_exprs)"),
    ("Long *", "summary", "of all expressions: CHECKED numbers, and how many blocks are done; all 0 before and after"),
    ("Long *", "told", "(CHECKED + 1) the same for the host, at the end, and the ticket when it is there"),
    ("Long", "n_tokens max_tokens", ""),
    ("Long", "ticket", "another one for every population"),
    ("int", "n_exprs", ""),
)
_DEPENDENCE_ARGUMENTS: Rows = (
    ("const unsigned char *", "kinds", "the population's tokens (expressions/population.py)"),
    ("const unsigned long long *", "values", ""),
    ("const Long *", "offsets", "(n_exprs + 1)"),
    ("const int *", "n_params", "(n_exprs)"),
    ("const unsigned char *", "arity uses", "by operator: linearity.py"),
    ("char *", "scratch", "what the threads work with"),
    ("unsigned long long *", "linear", "(n_exprs) bits of the parameters that the expression is linear in"),
    ("unsigned char *", "verdicts", "(n_exprs) RUNNING, or the status of what is not to be fitted"),
    ("int", "n_exprs n_chunks longest threads", "the most tokens of an expression; of all blocks"),
)
_MEASURE_ARGUMENTS: Rows = (
    ("const Instruction *", "instructions", "the programs, as in Bytecode"),
    ("const int *", "first_instruction first_step n_params", ""),
    ("const Step *", "steps", ""),
    ("const unsigned char *", "verdicts", "(n_exprs)"),
    ("const bool *", "rare_opcodes rare_steps", "(65536) and (256): whether it is an uncommon operator's"),
    ("const Long *", "arenas", "(N_GROUPS, ARENA_SHAPE) how a group's blocks use their memory (batches.py)"),
    ("const Long *", "summary", "(SUMMARY) of programs that are being made, or null"),
    ("Long *", "needs", "(N_GROUPS, N_SIZES, NEEDS) the most of the expressions of each batch; all 0 before and after"),
    ("Long *", "told", "the same for the host, at the end"),
    ("unsigned *", "key", "(n_exprs) batch, then the longest first; those that are in none last"),
    ("int *", "order", "(n_exprs) expressions in the order of their keys, of lengths in classes; null: in none"),
    ("Long", "small_arena shared_per_block", "bytes per warp; bytes"),
    ("Long", "most_words", "there is room for; with a summary of more there are no programs, and nobody is in a batch"),
    ("int", "n_exprs n_instructions", "without a summary"),
)
_SCHEDULE_ARGUMENTS: Rows = (
    ("const Long *", "cost", "(n_exprs + 1) of all expressions before one"),
    ("const int *", "first_instruction", "(n_exprs)"),
    ("const double *", "place", "(n_partitions * n_chunks) of all chunks, ascending"),
    ("const int *", "rank", "(n_partitions, n_chunks) of a chunk among them"),
    ("Chunk *", "chunks", "(n_partitions, n_chunks)"),
    ("Long", "first stop", "items"),
    ("int", "n_exprs n_instructions n_partitions n_chunks cost_of_result", ""),
)

_C_TYPES = {
    "Long": ctypes.c_int64,
    "int": ctypes.c_int32,
    "unsigned": ctypes.c_uint32,
    "double": ctypes.c_double,
    "unsigned long long": ctypes.c_uint64,
}


def ctypes_struct(name: str, rows: Rows) -> type[ctypes.Structure]:
    """A struct as ctypes has it; a pointer is an address."""
    fields = [(field, _C_TYPES.get(c_type, ctypes.c_uint64)) for c_type, names, _ in rows for field in names.split()]
    names = frozenset(field for field, _ in fields)
    return type(name, (ctypes.Structure,), {"_fields_": fields, "names": names, "__slots__": ()})  # nothing else is set


def cuda_struct(name: str, rows: Rows, align: str = "") -> str:
    """A struct in CUDA C."""
    lines = [f"struct {align}{name} {{"]
    for c_type, names, comment in rows:
        kind, star = (c_type[:-1], "*") if c_type.endswith("*") else (c_type + " ", "")
        lines.append(
            f"    {kind}{', '.join(star + field for field in names.split())};{'  // ' * bool(comment)}{comment}"
        )
    return "\n".join([*lines, "};"])


Progress = ctypes_struct("Progress", _PROGRESS)
Arguments = ctypes_struct("Arguments", _ARGUMENTS)  # of the interpreter's kernels
LoweringArguments = ctypes_struct("LoweringArguments", _LOWERING_ARGUMENTS)  # of the kernels that make bytecode
CheckArguments = ctypes_struct("CheckArguments", _CHECK_ARGUMENTS)
ScheduleArguments = ctypes_struct("ScheduleArguments", _SCHEDULE_ARGUMENTS)
DependenceArguments = ctypes_struct("DependenceArguments", _DEPENDENCE_ARGUMENTS)
MeasureArguments = ctypes_struct(
    "MeasureArguments", _MEASURE_ARGUMENTS
)  # of the kernel that finds who is fitted with whom
FitArguments = ctypes_struct("FitArguments", _FIT_ARGUMENTS)  # of the kernels that differentiate and fit

TEXTS = {  # by the name of the line that each stands for
    **ENUMS,
    "Instruction": cuda_struct("Instruction", _INSTRUCTION, "__align__(8) "),
    "Step": cuda_struct("Step", _STEP, "__align__(16) "),
    "Chunk": cuda_struct("Chunk", _CHUNK, "__align__(16) "),
    "Arguments": cuda_struct("Arguments", _ARGUMENTS),
    "FitArguments": cuda_struct("FitArguments", _FIT_ARGUMENTS),
    "LoweringArguments": cuda_struct("LoweringArguments", _LOWERING_ARGUMENTS),
    "CheckArguments": cuda_struct("CheckArguments", _CHECK_ARGUMENTS),
    "ScheduleArguments": cuda_struct("ScheduleArguments", _SCHEDULE_ARGUMENTS),
    "DependenceArguments": cuda_struct("DependenceArguments", _DEPENDENCE_ARGUMENTS),
    "MeasureArguments": cuda_struct("MeasureArguments", _MEASURE_ARGUMENTS),
    "Progress": cuda_struct("Progress", _PROGRESS),
}
