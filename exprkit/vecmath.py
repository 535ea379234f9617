"""Formulas on SIMD vectors (being written)."""

def abs(*args):
    raise NotImplementedError

def acos(*args):
    raise NotImplementedError

def acosh(*args):
    raise NotImplementedError

def add(*args):
    raise NotImplementedError

def aq(*args):
    raise NotImplementedError

def asin(*args):
    raise NotImplementedError

def asinh(*args):
    raise NotImplementedError

def atan(*args):
    raise NotImplementedError

def atan2(*args):
    raise NotImplementedError

def atanh(*args):
    raise NotImplementedError

def cbrt(*args):
    raise NotImplementedError

def ceil(*args):
    raise NotImplementedError

def cond(*args):
    raise NotImplementedError

def copy(*args):
    raise NotImplementedError

def cos(*args):
    raise NotImplementedError

def cosh(*args):
    raise NotImplementedError

def cube(*args):
    raise NotImplementedError

def div(*args):
    raise NotImplementedError

def erf(*args):
    raise NotImplementedError

def erfc(*args):
    raise NotImplementedError

def exp(*args):
    raise NotImplementedError

def exp2(*args):
    raise NotImplementedError

def exp2_product(*args):
    raise NotImplementedError

def expm1(*args):
    raise NotImplementedError

def floor(*args):
    raise NotImplementedError

def gamma(*args):
    raise NotImplementedError

def greater(*args):
    raise NotImplementedError

def greaterequal(*args):
    raise NotImplementedError

def hypot(*args):
    raise NotImplementedError

def inv(*args):
    raise NotImplementedError

def less(*args):
    raise NotImplementedError

def lessequal(*args):
    raise NotImplementedError

def lgamma(*args):
    raise NotImplementedError

def log(*args):
    raise NotImplementedError

def log10(*args):
    raise NotImplementedError

def log1p(*args):
    raise NotImplementedError

def log2(*args):
    raise NotImplementedError

def log2abs_pair(*args):
    raise NotImplementedError

def logabs(*args):
    raise NotImplementedError

def logical_and(*args):
    raise NotImplementedError

def logical_or(*args):
    raise NotImplementedError

def logistic(*args):
    raise NotImplementedError

def max(*args):
    raise NotImplementedError

def min(*args):
    raise NotImplementedError

def mod(*args):
    raise NotImplementedError

def mul(*args):
    raise NotImplementedError

def neg(*args):
    raise NotImplementedError

def pow(*args):
    raise NotImplementedError

def powabs(*args):
    raise NotImplementedError

def relu(*args):
    raise NotImplementedError

def round(*args):
    raise NotImplementedError

def sign(*args):
    raise NotImplementedError

def sin(*args):
    raise NotImplementedError

def sinh(*args):
    raise NotImplementedError

def sqr(*args):
    raise NotImplementedError

def sqrt(*args):
    raise NotImplementedError

def sqrtabs(*args):
    raise NotImplementedError

def sub(*args):
    raise NotImplementedError

def tan(*args):
    raise NotImplementedError

def tanh(*args):
    raise NotImplementedError
