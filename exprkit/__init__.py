"""exprkit"""
