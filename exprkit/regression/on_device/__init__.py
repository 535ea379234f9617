"""The search's pool on a GPU: functions made, kept once each, joined and regressed there; pairs come back.

In: what the host's parts take.  Out: what they give, of pools a hundred times as large.  The loops are the host's own,
translated.

=============  =====================================================================
``programs``   the kernels of pool and join (``pool.cu``, ``join.cu``), for some operators
``pool``       ``DevicePool``
``join``       ``DevicePartners``
``regress``    all pairs by products of matrices
=============  =====================================================================
"""
