"""The web portal of the stacking service (Raicu09, section 6.2): requests of astronomers as tasks of a cluster.

It stands on the public Python API of eyas alone. `lists` reads what was asked, `index` says which exposures show it, `work` gives
the tasks to the cluster and collects what comes back, `store` and `accounts` keep people and requests, and `web`, `api` and `vo`
are the three faces: pages, programs, and the protocols of the Virtual Observatory.
"""
