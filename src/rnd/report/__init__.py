"""Pictures, videos and pages from run folders. Nothing here trains: what is drawn is what lies on the disk."""
