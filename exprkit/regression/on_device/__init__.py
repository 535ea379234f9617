"""The function pool on a GPU: functions are made, deduplicated, joined and regressed there; pairs come back.

In: what the host's parts take.  Out: what they give, of pools a hundred times as large.  The loops are the host's own,
translated.

=============  =====================================================================
``pool``       ``DevicePool`` (``pool.cu``)
``join``       ``DevicePartners`` (``join.cu``)
``triples``    three functions that make y (``triples.cu``)
``regress``    all pairs by products of matrices
=============  =====================================================================
"""
